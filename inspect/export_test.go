package inspect

// DeadByErrorOf is DeadByError with another bound.
var DeadByErrorOf = (*Inspector).deadByError
