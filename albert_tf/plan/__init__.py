"""What a training run will cost and whether it fits, before a machine for it is rented."""
