"""litertjs-sweep: measures .tflite models in real browsers through LiteRT.js."""

__version__ = "0.1.0"
