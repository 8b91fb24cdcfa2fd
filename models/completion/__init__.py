"""Input, blocks and moments shared by the models of incomplete kernel matrices."""
