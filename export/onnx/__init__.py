"""Exports models as ONNX, in float32 and int8."""
