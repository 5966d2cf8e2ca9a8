"""Image-to-image networks: CycleGAN (Zhu 2017), pix2pix (Isola 2016), AdaIN (Huang 2017), VDSR (Kim 2016)."""

from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Concat, Residual, conv, conv_relu, upsample

__all__ = ["AdaIN", "cyclegan", "pix2pix", "vdsr"]


def cyclegan(*, padded: bool = False) -> nn.Module:
    """Returns the generator of CycleGAN with 9 residual blocks, for images of 256 x 256.

    Args:
        padded: Whether each of the two transposed convolutions omits the last row and column, which a separate padding
            layer then adds; this makes two layers more.
    """
    blocks = [Residual(nn.Sequential(*_reflected(256, 256, 3), nn.ReLU(), *_reflected(256, 256, 3))) for _ in range(9)]
    smaller = [
        nn.Sequential(conv(outs // 2, outs, 3, 2, bias=True), nn.InstanceNorm2d(outs), nn.ReLU()) for outs in (128, 256)
    ]
    larger = [
        nn.Sequential(
            nn.ConvTranspose2d(2 * outs, outs, 3, 2, 1, 0 if padded else 1),
            nn.ZeroPad2d((0, 1, 0, 1)) if padded else nn.Identity(), nn.InstanceNorm2d(outs), nn.ReLU(),
        )
        for outs in (128, 64)
    ]  # fmt: skip
    last = nn.Conv2d(64, 3, 7, padding=3, padding_mode="reflect")
    return nn.Sequential(*_reflected(3, 64, 7), nn.ReLU(), *smaller, *blocks, *larger, last, nn.Tanh())


def _reflected(ins: int, outs: int, kernel: int) -> tuple[nn.Module, nn.Module]:
    padded = nn.Conv2d(ins, outs, kernel, padding=kernel // 2, padding_mode="reflect")
    return padded, nn.InstanceNorm2d(outs)


def pix2pix() -> nn.Module:
    """Returns the generator of pix2pix, a U-Net of 8 levels, for images of 256 x 256."""
    inner: nn.Module = nn.Sequential(
        nn.LeakyReLU(0.2), conv(512, 512, 4, 2, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(512, 512, 4, 2, 1, bias=False), nn.BatchNorm2d(512),
    )  # fmt: skip
    for outer, channels in ((512, 512), (512, 512), (512, 512), (256, 512), (128, 256), (64, 128)):
        inner = nn.Sequential(
            nn.LeakyReLU(0.2), conv(outer, channels, 4, 2, padding=1), nn.BatchNorm2d(channels),
            Concat(nn.Identity(), inner),
            nn.ReLU(), nn.ConvTranspose2d(2 * channels, outer, 4, 2, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
    return nn.Sequential(
        conv(3, 64, 4, 2, padding=1), Concat(nn.Identity(), inner), nn.ReLU(), nn.ConvTranspose2d(128, 3, 4, 2, 1),
        nn.Tanh(),
    )  # fmt: skip


class AdaIN(nn.Module):
    """Style transfer by adaptive instance normalisation (Huang and Belongie 2017), for images of 512 x 512.

    The encoder is VGG-19 up to relu4_1, the decoder its mirror image.
    """

    def __init__(self) -> None:
        super().__init__()
        pool = nn.MaxPool2d(2)
        self.encode = nn.Sequential(
            conv(3, 3, 1, bias=True), _reflected_relu(3, 64), _reflected_relu(64, 64), pool,
            _reflected_relu(64, 128), _reflected_relu(128, 128), pool,
            _reflected_relu(128, 256), *(_reflected_relu(256, 256) for _ in range(3)), pool, _reflected_relu(256, 512),
        )  # fmt: skip
        self.decode = nn.Sequential(
            _reflected_relu(512, 256), upsample(), *(_reflected_relu(256, 256) for _ in range(3)),
            _reflected_relu(256, 128), upsample(), _reflected_relu(128, 128), _reflected_relu(128, 64), upsample(),
            _reflected_relu(64, 64), nn.Conv2d(64, 3, 3, padding=1, padding_mode="reflect"),
        )  # fmt: skip

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        """Returns the image `content` in the style of `style`.

        Shapes:
            content, style, result: [batch, 3, height, width].
        """
        features, styled = self.encode(content), self.encode(style)
        mean, deviation = _moments(features)
        style_mean, style_deviation = _moments(styled)
        image: Tensor = self.decode((features - mean) / deviation * style_deviation + style_mean)
        return image


def _reflected_relu(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(ins, outs, 3, padding=1, padding_mode="reflect"), nn.ReLU())


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mean and the standard deviation of each channel, each of shape [batch, channels, 1, 1]."""
    mean = features.mean((2, 3), keepdim=True)
    return mean, ((features - mean).square().mean((2, 3), keepdim=True) + 1e-5).sqrt()


def vdsr() -> nn.Module:
    """Returns VDSR (Kim et al. 2016), super-resolution of the luminance by 20 convolutions, for images of 256 x 256."""
    return Residual(nn.Sequential(conv_relu(1, 64), *(conv_relu(64, 64) for _ in range(18)), conv(64, 1, bias=True)))
