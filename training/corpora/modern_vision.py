"""Vision networks of the modern corpus: classification, detection, segmentation and depth, at deployed image sizes."""

from costmodel.training.corpora.modern_network import Network, images, network_recipe

__all__ = ["VISION"]

_CLASSES = {"num_labels": 1000}
_TINY_VIT = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
_SMALL_VIT = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}

_VIT_TINY = _CLASSES | _TINY_VIT
_VIT_SMALL = _CLASSES | _SMALL_VIT
_RESNET18 = _CLASSES | {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
_REGNET_400MF = _CLASSES | {"hidden_sizes": [48, 104, 208, 440], "depths": [1, 3, 6, 6], "groups_width": 8}
_EFFICIENTNET_B0 = _CLASSES | {
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_dim": 1280,
    "image_size": 224,
}
_CONVNEXT_V2_NANO = _CLASSES | {"hidden_sizes": [80, 160, 320, 640], "depths": [2, 2, 8, 2]}
_BEIT_BASE = _CLASSES | {"use_relative_position_bias": True, "use_mean_pooling": True}
_YOLOS_TINY = _TINY_VIT | {"image_size": [512, 512], "num_labels": 91}
_LEVIT_128S = _CLASSES | {"hidden_sizes": [128, 256, 384], "num_attention_heads": [4, 6, 8], "depths": [2, 3, 4]}
_SCENES = {"num_labels": 150}
_DEPTH_SMALL = {
    "backbone_config": {
        "model_type": "dinov2",
        "image_size": 252,
        "patch_size": 14,
        **_SMALL_VIT,
        "out_features": ["stage3", "stage6", "stage9", "stage12"],
        "reshape_hidden_states": False,
        "apply_layernorm": True,
    },
    "reassemble_hidden_size": 384,
    "neck_hidden_sizes": [48, 96, 192, 384],
    "fusion_hidden_size": 64,
}

VISION = (
    network_recipe(
        "resnet18_224", "resnet", "ResNet-18", Network("ResNetForImageClassification", images(224), _RESNET18)
    ),
    network_recipe(
        "resnet18_224_b8",
        "resnet",
        "ResNet-18, batch 8",
        Network("ResNetForImageClassification", images(224, 8), _RESNET18),
    ),
    network_recipe(
        "resnet50_224", "resnet", "ResNet-50", Network("ResNetForImageClassification", images(224), _CLASSES)
    ),
    network_recipe(
        "regnet_y_400mf_224",
        "regnet",
        "RegNetY-400MF",
        Network("RegNetForImageClassification", images(224), _REGNET_400MF),
    ),
    network_recipe(
        "regnet_y_4gf_224", "regnet", "RegNetY-4GF", Network("RegNetForImageClassification", images(224), _CLASSES)
    ),
    network_recipe(
        "mobilenet_v1_100_224",
        "mobilenet",
        "MobileNetV1",
        Network("MobileNetV1ForImageClassification", images(224), _CLASSES),
    ),
    network_recipe(
        "mobilenet_v2_100_224",
        "mobilenet",
        "MobileNetV2",
        Network("MobileNetV2ForImageClassification", images(224), _CLASSES),
    ),
    network_recipe(
        "mobilenet_v2_075_160_b8",
        "mobilenet",
        "MobileNetV2 0.75, 160 px, batch 8",
        Network(
            "MobileNetV2ForImageClassification",
            images(160, 8),
            _CLASSES | {"depth_multiplier": 0.75, "image_size": 160},
        ),
    ),
    network_recipe(
        "efficientnet_b0_224",
        "efficientnet",
        "EfficientNet-B0",
        Network("EfficientNetForImageClassification", images(224), _EFFICIENTNET_B0),
    ),
    network_recipe(
        "convnext_tiny_224", "convnext", "ConvNeXt-T", Network("ConvNextForImageClassification", images(224), _CLASSES)
    ),
    network_recipe(
        "convnext_v2_nano_224",
        "convnext",
        "ConvNeXt V2 Nano",
        Network("ConvNextV2ForImageClassification", images(224), _CONVNEXT_V2_NANO),
    ),
    network_recipe(
        "vit_tiny_p16_224_b8",
        "vit",
        "ViT-Ti/16, batch 8",
        Network("ViTForImageClassification", images(224, 8), _VIT_TINY),
    ),
    network_recipe(
        "vit_small_p16_224", "vit", "ViT-S/16", Network("ViTForImageClassification", images(224), _VIT_SMALL)
    ),
    network_recipe("vit_base_p16_224", "vit", "ViT-B/16", Network("ViTForImageClassification", images(224), _CLASSES)),
    network_recipe(
        "deit_tiny_p16_224", "vit", "DeiT-Ti/16", Network("DeiTForImageClassification", images(224), _VIT_TINY)
    ),
    network_recipe(
        "beit_base_p16_224", "vit", "BEiT-B/16", Network("BeitForImageClassification", images(224), _BEIT_BASE)
    ),
    network_recipe(
        "dinov2_small_p14_224",
        "vit",
        "DINOv2 ViT-S/14",
        Network("Dinov2Model", images(224), _SMALL_VIT | {"image_size": 224}),
    ),
    network_recipe(
        "yolos_tiny_512", "vit", "YOLOS-Ti, 512 px", Network("YolosForObjectDetection", images(512), _YOLOS_TINY)
    ),
    network_recipe(
        "clip_vision_b_p32_224", "vit", "CLIP ViT-B/32, images", Network("CLIPVisionModelWithProjection", images(224))
    ),
    network_recipe(
        "depth_anything_small_252",
        "vit",
        "Depth Anything Small, 252 px",
        Network("DepthAnythingForDepthEstimation", images(252), _DEPTH_SMALL),
    ),
    network_recipe(
        "swin_tiny_p4_w7_224", "swin", "Swin-T", Network("SwinForImageClassification", images(224), _CLASSES)
    ),
    network_recipe(
        "segformer_b0_512",
        "segformer",
        "SegFormer-B0, 512 px",
        Network("SegformerForSemanticSegmentation", images(512), _SCENES),
    ),
    network_recipe(
        "mobilevit_small_256",
        "mobilevit",
        "MobileViT-S",
        Network("MobileViTForImageClassification", images(256), _CLASSES),
    ),
    network_recipe(
        "mobilevit_v2_100_256",
        "mobilevit",
        "MobileViTV2-1.0",
        Network("MobileViTV2ForImageClassification", images(256), _CLASSES),
    ),
    network_recipe(
        "levit_128s_224", "levit", "LeViT-128S", Network("LevitForImageClassification", images(224), _LEVIT_128S)
    ),
    network_recipe(
        "poolformer_s12_224",
        "poolformer",
        "PoolFormer-S12",
        Network("PoolFormerForImageClassification", images(224), _CLASSES),
    ),
)
