"""Image generators: super-resolution (EDSR, FSRCNN, ESPCN, SRGAN), DnCNN, DCGAN, a VAE decoder, an autoencoder."""

from torch import nn

from costmodel.training.corpora.nets.blocks import Residual, conv, conv_bn, conv_bn_relu, conv_relu, upsample
from costmodel.training.corpora.nets.pieces import Attention, Permuted, Rearranged

__all__ = ["autoencoder", "dcgan", "dncnn", "edsr", "espcn", "fsrcnn", "srgan", "vae_decoder"]


def edsr(blocks: int, width: int, factor: int) -> nn.Module:
    """EDSR (Lim et al. 2017): residual blocks without normalisation; its baseline has 16 blocks of 64 channels."""
    body = [Residual(nn.Sequential(conv_relu(width, width), conv(width, width, bias=True))) for _ in range(blocks)]
    return nn.Sequential(
        conv(3, width, bias=True), Residual(nn.Sequential(*body, conv(width, width, bias=True))),
        conv(width, width * factor**2, bias=True), nn.PixelShuffle(factor), conv(width, 3, bias=True),
    )  # fmt: skip


def fsrcnn(factor: int) -> nn.Module:
    """FSRCNN (Dong et al. 2016) on the luminance: d = 56, s = 12, m = 4."""
    mapping = [layer for _ in range(4) for layer in (conv(12, 12, bias=True), nn.PReLU(12))]
    return nn.Sequential(
        conv(1, 56, 5, bias=True), nn.PReLU(56), conv(56, 12, 1, bias=True), nn.PReLU(12), *mapping,
        conv(12, 56, 1, bias=True), nn.PReLU(56),
        nn.ConvTranspose2d(56, 1, 9, factor, 4, output_padding=factor - 1),
    )  # fmt: skip


def espcn(factor: int) -> nn.Module:
    """ESPCN (Shi et al. 2016) on the luminance, with sub-pixel convolution (pixel shuffle)."""
    return nn.Sequential(
        conv(1, 64, 5, bias=True), nn.Tanh(), conv(64, 32, bias=True), nn.Tanh(), conv(32, factor**2, bias=True),
        nn.PixelShuffle(factor),
    )  # fmt: skip


def srgan(blocks: int) -> nn.Module:
    """The generator of SRGAN (Ledig et al. 2016), which enlarges four times."""
    body = [Residual(nn.Sequential(*conv_bn(64, 64), nn.PReLU(), *conv_bn(64, 64))) for _ in range(blocks)]
    larger = [layer for _ in range(2) for layer in (conv(64, 256, bias=True), nn.PixelShuffle(2), nn.PReLU())]
    return nn.Sequential(
        conv(3, 64, 9, bias=True), nn.PReLU(), Residual(nn.Sequential(*body, *conv_bn(64, 64))), *larger,
        conv(64, 3, 9, bias=True), nn.Tanh(),
    )  # fmt: skip


def dncnn(depth: int) -> nn.Module:
    """DnCNN (Zhang et al. 2016): predicts the noise of a grey image and subtracts it."""
    inner = [conv_bn_relu(64, 64) for _ in range(depth - 2)]
    return Residual(nn.Sequential(conv_relu(1, 64), *inner, conv(64, 1)))


def dcgan(width: int) -> nn.Module:
    """The generator of DCGAN (Radford et al. 2015), images of 64 x 64."""
    layers: list[nn.Module] = [
        nn.ConvTranspose2d(100, 8 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU()
    ]  # fmt: skip
    for outs in (4 * width, 2 * width, width):
        layers += [nn.ConvTranspose2d(2 * outs, outs, 4, 2, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def _normed(ins: int, outs: int) -> nn.Module:
    branch = nn.Sequential(
        nn.GroupNorm(16, ins), nn.SiLU(), conv(ins, outs, bias=True), nn.GroupNorm(16, outs), nn.SiLU(),
        conv(outs, outs, bias=True),
    )  # fmt: skip
    return Residual(branch, None if ins == outs else conv(ins, outs, 1, bias=True))


def vae_decoder(width: int, side: int) -> nn.Module:
    """The decoder of a latent diffusion model (Rombach et al. 2021), narrower: attention in the middle, three resizes.

    Args:
        width: Channels at the full size; 128 in the original.
        side: Side of the latent map, an eighth of the image's.
    """
    middle = 4 * width
    attend = Residual(
        nn.Sequential(
            nn.GroupNorm(16, middle), nn.Flatten(2), Permuted(Attention(middle, 1)), nn.Unflatten(2, (side, side))
        )
    )
    layers: list[nn.Module] = [conv(4, middle, bias=True), _normed(middle, middle), attend, _normed(middle, middle)]
    ins = middle
    for outs in (middle, 2 * width, width):
        layers += [_normed(ins, outs), _normed(outs, outs), upsample(), conv(outs, outs, bias=True)]
        ins = outs
    return nn.Sequential(*layers, nn.GroupNorm(16, width), nn.SiLU(), conv(width, 3, bias=True))


def autoencoder(side: int, width: int, code: int) -> nn.Module:
    """A convolutional autoencoder for anomaly detection: strided convolutions to a code, transposed ones back."""
    corner = side // 16
    down: list[nn.Module] = []
    up: list[nn.Module] = []
    ins = 3
    for outs in (width, 2 * width, 4 * width, 8 * width):
        down += [conv(ins, outs, 4, 2, padding=1, bias=True), nn.LeakyReLU(0.2)]
        last = nn.Sigmoid() if ins == 3 else nn.ReLU()
        up = [nn.ConvTranspose2d(outs, ins, 4, 2, 1), last, *up]
        ins = outs
    flat = ins * corner**2
    narrow = (nn.Flatten(), nn.Linear(flat, code), nn.Linear(code, flat), nn.ReLU())
    return nn.Sequential(*down, Rearranged(0, 2, 3, 1), *narrow, nn.Unflatten(1, (ins, corner, corner)), *up)
