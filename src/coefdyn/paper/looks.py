"""One word and one colour for every choice, in all figures of the paper."""

from coefdyn.plot.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY

READOUTS = {
    "exp": (r"$e^s$", BLUE),
    "softplus": ("softplus", ORANGE),
    "relu": ("relu", GREEN),
    "identity": ("identity", RED),
    "sigmoid": ("sigmoid", SKY),
    "elu_plus_one": (r"elu$+1$", PINK),
    "kernel_exp": (r"$\psi=e^s$", BLUE),
    "kernel_softplus": (r"$\psi=$softplus", ORANGE),
    "kernel_relu": (r"$\psi=$relu", GREEN),
    "kernel_elu_plus_one": (r"$\psi=$elu$+1$", PINK),
}
KERNELS = tuple(name for name in READOUTS if name.startswith("kernel_"))
SCORES = tuple(name for name in READOUTS if name not in KERNELS)  # readouts of q . h
SCALINGS = {
    "inverse_sqrt": (r"$1/\sqrt{n}$", BLUE),
    "gate_inverse_sqrt": (r"$z_j/\sqrt{n}$", SKY),
    "one": (r"$1$", RED),
    "gate": (r"$z_j$", ORANGE),
}
NORMALIZATIONS = {
    "one": (r"$\eta_i=1$", GREY),
    "power": (r"$\eta_i=c^i$", ORANGE),
    "row_sum": (r"$\eta_i=\sum_j\alpha_{ij}$", BLUE),
}
FAMILIES = {  # of principle 5
    "softmax_attention": (r"$\phi=e^s,\ A=I$", BLUE),
    "relu_attention": (r"$\phi=$relu$,\ A=I$", GREEN),
    "mamba2": (r"$\phi=$Id$,\ A_t=\lambda_t I$", PINK),
    "householder": (r"$\phi=$Id$,\ A_t=I-\beta_t k_t k_t^\top$", ORANGE),
}
TABLE_1 = {
    "softmax_attention": "softmax attention",
    "linear_attention": "linear attention",
    "normalized_attention": "normalized attention",
    "gla": "GLA",
    "mamba2": "Mamba-2",
    "deltanet": "DeltaNet",
    "gated_deltanet": "Gated DeltaNet",
    "mlstm": "mLSTM",
}
NEWER = {
    "rope": "RoPE",
    "alibi": "ALiBi",
    "fox": "FoX",
    "wall": "Wall",
    "path": "PaTH",
    "path_fox": "PaTH-FoX",
    "retnet": "RetNet",
    "mamba3": "Mamba-3 (transition)",
    "deltanet_signed": "DeltaNet, signed",
    "kda": "Kimi delta attention",
    "deltaproduct": "DeltaProduct",
    "gated_deltaproduct": "Gated DeltaProduct",
    "rwkv7": "RWKV-7 (transition)",
}
PRESETS = TABLE_1 | NEWER
VERDICTS = {  # a short word, and its colour
    "reproduced": ("yes", "#7fc8ae"),
    "not reproduced": ("no", "#f0a882"),
    "inconclusive": ("open", "#f3e2a0"),
    "invariant by construction": ("one\nfunction", "#b9d9f0"),
    "not decidable at this scale": ("not here", "#dddddd"),
    "not enough runs": ("no runs", "#f4f4f4"),
}
NEAR_ZERO = r"fraction of $|\alpha_{ij}/\eta_i| \leq 10^{-3}$"


def readout_look(name: str) -> tuple[str, str]:
    """The word and the colour of a readout; one that is not in the paper's figures is grey."""
    return READOUTS.get(name, (name.replace("_", " "), GREY))
