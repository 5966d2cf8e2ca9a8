from .adapter import OpenVino as OpenVino
