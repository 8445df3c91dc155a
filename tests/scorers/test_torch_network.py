"""How networks in plain torch run on devices."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from framenest.scorers.torch_networks import _fast_kernels  # noqa: E402


@pytest.mark.parametrize("before", [True, False])
def test_settings_of_torch_are_as_they_were_afterwards(before):
    torch.backends.cuda.enable_cudnn_sdp(before)
    try:
        with _fast_kernels(torch.float16):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
            assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
        assert not torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
