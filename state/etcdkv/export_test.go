package etcdkv

// Encode is encode, for the benchmark.
var Encode = encode
