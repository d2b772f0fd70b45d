"""Other people's kernels, for the designs they can compute; `model.backend` takes their names."""

from coefdyn.mixer.backends.adapter import Adapter
from coefdyn.mixer.backends.fla import Fla
from coefdyn.mixer.backends.flash_attn import FlashAttn
from coefdyn.mixer.backends.flex_attention import FlexAttention
from coefdyn.mixer.backends.mamba_ssm import MambaSsm
from coefdyn.mixer.backends.sdpa import Sdpa

ADAPTERS: dict[str, Adapter] = {
    kernel.name: kernel for kernel in (Sdpa(), Fla(), FlexAttention(), FlashAttn(), MambaSsm())
}
