"""Our own experiments beyond the paper's: their grids, written by hand as in paper.py."""

from tests.config.paper import PRESETS, Row

EVOLUTIONS = (
    "scalar_mamba2 signed_mamba2 diagonal_gla signed_gla householder_key_positive "
    "householder_key_learned householder_product householder_product_four rotary mamba3"
)
SCHEMES = (
    "identity constant rotary alibi forget householder_free_learned forget_householder diagonal_gla"
)
ARCHITECTURES = (
    "softmax_attention linear_attention normalized_attention gla mamba2 deltanet gated_deltanet "
    "mlstm rope alibi fox wall path path_fox retnet mamba3 deltanet_signed kda deltaproduct "
    "gated_deltaproduct rwkv7"
)
M, S = "mamba2", "softmax_attention_conv"
PATTERNS = (
    f"[{M}] [{S},{M},{M},{M}] [{M},{S},{M},{M}] [{M},{M},{S},{M}] [{M},{M},{M},{S}] [{S},{M}] "
    f"[{M},{S}] [{S}]"
)
# By scale: the number of runs that a plan has, and of seeds that follow pilots.
COUNTS: dict[str, dict[str, tuple[int, int]]] = {
    "state_tracking": {"paper": (400, 0), "lite": (80, 200), "smoke": (40, 0)},
    "position_lengths": {"paper": (200, 0), "lite": (40, 60), "smoke": (20, 0)},
    "mqar_frontier": {"paper": (252, 0), "lite": (84, 126), "smoke": (63, 0)},
    "hybrids": {"paper": (80, 0), "lite": (16, 24), "smoke": (8, 0)},
}
OURS = tuple(COUNTS)
WITHOUT_PILOTS = ("mad_benchmark", "mad_switches")
# The original benchmark's settings: its baseline, then what it varies, one at a time.
MAD: dict[str, tuple[dict[str, float], dict[str, list[float]]]] = {
    "compression": (
        {"vocab_size": 16, "seq_len": 32, "num_train": 12800},
        {"vocab_size": [32, 64, 128], "seq_len": [64, 128, 256],
         "num_train": [6400, 3200, 1600, 800]},
    ),
    "fuzzy_recall": (
        {"vocab_size": 16, "seq_len": 128, "num_train": 12800, "k_motif_size": 3,
         "v_motif_size": 3},
        {"vocab_size": [32, 64, 128], "seq_len": [256, 512, 1024],
         "num_train": [6400, 3200, 1600, 800]},
    ),
    "in_context_recall": (
        {"vocab_size": 16, "seq_len": 128, "num_train": 12800},
        {"vocab_size": [32, 64, 128], "seq_len": [256, 512, 1024],
         "num_train": [6400, 3200, 1600, 800]},
    ),
    "memorization": (
        {"vocab_size": 256, "seq_len": 32, "num_train": 256},
        {"vocab_size": [512, 1024, 2048, 4096, 8192]},
    ),
    "noisy_recall": (
        {"vocab_size": 32, "noise_vocab_size": 16, "seq_len": 128, "num_train": 12800,
         "frac_noise": 0.2},
        {"vocab_size": [48, 80, 144], "seq_len": [256, 512, 1024],
         "num_train": [6400, 3200, 1600, 800], "frac_noise": [0.4, 0.6, 0.8]},
    ),
    "selective_copying": (
        {"vocab_size": 16, "seq_len": 256, "num_tokens_to_copy": 16, "num_train": 12800},
        {"vocab_size": [32, 64, 128], "seq_len": [512, 1024],
         "num_train": [6400, 3200, 1600, 800], "num_tokens_to_copy": [32, 64, 96]},
    ),
}  # fmt: skip
# What varies besides seeds and rates, at lite.
AXES: dict[str, dict[str, str]] = {
    "state_tracking": {"task": "parity word_z60 word_s3 word_s5", "model/evolution": EVOLUTIONS},
    "position_lengths": {
        "task": "noisy_recall copy", "model/evolution": SCHEMES,
        "model/position": "none learned sinusoidal",
    },
    "mqar_frontier": {"model": ARCHITECTURES, "model.n_state": "16 32 64"},
    "hybrids": {"model.pattern": PATTERNS},
}  # fmt: skip
# What all runs share, at lite.
FIXED: dict[str, Row] = {
    "state_tracking": {
        "model": "gla", "model.n_layers": 1, "trainer.clip": 1.0, "task.test_lengths": [64, 128],
        "model/scaling": "inverse_sqrt", "model/readout": "identity", "model/normalization": "one",
    },
    "position_lengths": {
        "model": "softmax_attention", "model/readout": "exp", "model.factor": 0.95,
        "model.max_length": 512, "task.test_lengths": [256, 512], "task.test_gaps": True,
    },
    "mqar_frontier": {
        "task.vocab_size": 512, "model.n_heads": 2, "model.n_layers": 2,
        "model/preprocess": "short_conv",
    },
    "hybrids": {
        "task.vocab_size": 512, "model.n_heads": 2, "model.n_layers": 4,
        "model/position": "none", "model/preprocess": "short_conv",
    },
}  # fmt: skip
assert set(ARCHITECTURES.split()) <= set(PRESETS)
