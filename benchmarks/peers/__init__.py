"""What anyone would use instead: sets of operations under jaxgeom's names, each at its best.

A peer has those operations that its library does well; the others are skipped by name. All compute
in float32 and return jaxgeom's result types, so that one check and one clock serve everybody.
"""
