"""Other people's kernels, for the designs they can compute; `model.backend` takes their names."""

from coefdyn.mixer.backends.fla import Fla
from coefdyn.mixer.backends.flash_attn import FlashAttn
from coefdyn.mixer.backends.flex_attention import FlexAttention
from coefdyn.mixer.backends.kernel import Kernel
from coefdyn.mixer.backends.mamba_ssm import MambaSsm
from coefdyn.mixer.backends.sdpa import Sdpa

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (Sdpa(), Fla(), FlexAttention(), FlashAttn(), MambaSsm())
}
