"""The numbers of scale=lite and scale=smoke, which are ours. Written by hand, as in paper.py."""

from typing import Any

from tests.config.paper import AXES, Row

Axes = dict[str, str]
LITE = {"seed": "100", "optimizer.lr": "1e-3 3e-3 1e-2", "optimizer.weight_decay": "0"}
SMOKE = {"optimizer.lr": "5e-3", "optimizer.weight_decay": "0"}
# Language has one rate, as in the paper: at lite, that of each experiment's base design.
LITE_TEXT = {"principle5_wikitext": "3e-3", "all_principles_lm": "1e-2"}
SMOKE_TEXT = {"optimizer.lr": "5e-3"}
SEEDS = {"principle5_scaling": 5}  # at lite, besides the pilots; three elsewhere
# Of a grid at lite, points that are one function with another or are left to the paper's scale.
LEFT_OUT = {"principle5_scaling": 29, "principle6_normalization": 2, "architectures": 13 * 4}
ALONE = {"architectures": 24}  # points with one learning rate, which need no pilots
SIZES = {  # n or the length, of the experiments that vary it
    "lite": {
        "principle5_scaling": {"model.n_state": "64 256 512"},
        "principle5_no_post_norm": {"model.n_state": "64 256"},
        "principle2_2_length": {"task.seq_len": "64 128"},
    },
    "smoke": {
        "principle5_scaling": {"model.n_state": "16 32"},
        "principle5_no_post_norm": {"model.n_state": "16 32"},
        "principle2_2_length": {"task.seq_len": "16 32"},
    },
}


def axes(experiment: str, scale: str) -> Axes:
    """The same axes at every scale, with shorter lists of numbers."""
    given = dict(AXES[experiment])
    if scale == "paper":
        return given
    if "optimizer.weight_decay" not in given:
        text = {"seed": "100", "optimizer.lr": LITE_TEXT[experiment]}
        given |= text if scale == "lite" else SMOKE_TEXT
    else:
        given |= LITE if scale == "lite" else SMOKE
    return given | SIZES[scale].get(experiment, {})


# What depends on the scale and is no axis.
GROWING = {
    "lite": {"model.factor": 1.05, "model.base": 1.05, "model.evolution.c": 1.05},
    "smoke": {"model.factor": 1.4, "model.base": 1.4, "model.evolution.c": 1.4},
}
SET: dict[str, dict[str, Row]] = {
    "principle3_position": {"lite": {"model.factor": 0.95}, "smoke": {"model.factor": 0.8}},
    "principle4_evolution": {
        "lite": {"model.n_heads": 4, "model.n_state": 16, "model.d_value": 16},
        "smoke": {"model.n_heads": 2, "model.n_state": 16, "model.d_value": 16},
    },
    "principle5_scaling": {"lite": {"model.n_heads": 2}, "smoke": {"model.n_heads": 2}},
    "principle5_no_post_norm": {"lite": {"model.n_heads": 2}, "smoke": {"model.n_heads": 2}},
    "principle5_wikitext": {
        "lite": {"trainer.warmup_steps": 100},
        "smoke": {"trainer.warmup_steps": 1},
    },
    "principle6_normalization": GROWING,
    "principle6_no_post_norm": GROWING,
    "all_principles_lm": {
        "paper": {"grid.growth": 1.00607},
        "lite": {"trainer.warmup_steps": 100, "grid.growth": 1.05},
        "smoke": {"trainer.warmup_steps": 1, "grid.growth": 1.5},
    },
}

Sizes = dict[str, Any]


def sizes(width: int, heads: int, mlp: int) -> Sizes:
    same = dict.fromkeys(("d_model", "n_state", "d_value"), width)
    return same | {"n_heads": heads, "n_layers": 2, "d_mlp": mlp}


def section(task: Row, model: Sizes, rates: tuple[float, float], *trainer: int) -> Row:
    """`rates`: lr and weight decay; `trainer`: epochs, batch size, epochs between tests."""
    names = ("max_epochs", "batch_size", "test_every")
    return {
        "task": task,
        "model": model,
        "optimizer": dict(zip(("lr", "weight_decay"), rates, strict=True)),
        "trainer": dict(zip(names, trainer, strict=True)),
    }


def lite(*trainer: int, **task: Any) -> Row:
    counts = {"num_train": 3200, "num_test": 640}
    return section(counts | task, sizes(32, 4, 64), (3e-3, 0.0), *trainer)


def once(**task: Any) -> Row:
    """One layer, and every sequence once."""
    model = sizes(64, 4, 128) | {"n_layers": 1}
    return section({"num_test": 640} | task, model, (3e-3, 0.0), 1, 64, 1)


def smoke(**task: Any) -> Row:
    counts = {"num_train": 32, "num_test": 16}
    return section(counts | task, sizes(16, 2, 16), (5e-3, 0.0), 2, 16, 1)


SCALES: dict[str, dict[str, Any]] = {
    "lite": {
        "name": "lite",
        "selective_copying": lite(
            25, 64, 2, vocab_size=16, seq_len=64, num_tokens_to_copy=16, num_train=12800
        ),
        "memorization": lite(50, 16, 5, vocab_size=1024, seq_len=32, num_train=256),
        "noisy_recall": lite(
            70, 16, 7, vocab_size=32, seq_len=128, frac_noise=0.2, noise_vocab_size=16
        ),
        "fuzzy_recall": lite(
            40, 64, 4, vocab_size=13, seq_len=32, k_motif_size=2, v_motif_size=2, num_train=12800
        ),
        "in_context_recall": lite(40, 16, 4, vocab_size=12, seq_len=32),
        "compression": lite(40, 64, 4, vocab_size=8, seq_len=12),
        "parity": once(seq_len=32, num_train=160000),
        "modular_arithmetic": lite(40, 64, 4, seq_len=32, num_train=12800),
        "group_word": once(seq_len=32, num_train=160000),
        "flip_flop": lite(40, 64, 4, seq_len=64),
        "mqar": lite(
            1, 64, 1, vocab_size=512, seq_len=64, num_kv_pairs=8, num_train=128000,
            train_mix=[[4, 64], [8, 64]],
        ),
        "copy": lite(40, 64, 4, vocab_size=16, seq_len=64, num_train=12800),
        "wikitext103": section(
            {"corpus": "wikitext2", "vocab_size": 4096, "seq_len": 128, "epoch_steps": 100},
            sizes(128, 2, 256), (3e-3, 0.1), 30, 16, 10,
        ),
    },
    "smoke": {
        "name": "smoke",
        "selective_copying": smoke(vocab_size=8, seq_len=16, num_tokens_to_copy=4),
        "memorization": smoke(vocab_size=17, seq_len=16),
        "noisy_recall": smoke(vocab_size=12, seq_len=16, frac_noise=0.2, noise_vocab_size=4),
        "fuzzy_recall": smoke(vocab_size=9, seq_len=18, k_motif_size=2, v_motif_size=2),
        "in_context_recall": smoke(vocab_size=8, seq_len=16),
        "compression": smoke(vocab_size=8, seq_len=8),
        "parity": smoke(seq_len=16),
        "modular_arithmetic": smoke(seq_len=16),
        "group_word": smoke(seq_len=16),
        "flip_flop": smoke(seq_len=16),
        "mqar": smoke(vocab_size=16, seq_len=16, num_kv_pairs=3, train_mix=[[2, 8], [3, 16]]),
        "copy": smoke(vocab_size=8, seq_len=16),
        "wikitext103": section(
            {"corpus": "smoke", "vocab_size": 50257, "seq_len": 16, "epoch_steps": 2},
            sizes(16, 2, 16), (5e-3, 0.1), 2, 2, 1,
        ),
    },
}  # fmt: skip
