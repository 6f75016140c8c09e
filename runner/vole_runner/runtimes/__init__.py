"""How the keeper comes by a harness: one contract, one transport. Holds no rule of what may run."""
