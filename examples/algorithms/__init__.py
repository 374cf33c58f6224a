"""Published algorithms as machines, each explored whole, and each with a mistake that exploring finds."""
