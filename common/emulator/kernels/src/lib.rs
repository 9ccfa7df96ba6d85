//! One small kernel per primitive, and broken twins: what the emulator is tested on.
