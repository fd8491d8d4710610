// Package node is the composition root: it makes one leaderd process of the
// parts, starts them in order and stops them in order. It alone knows them all,
// and holds no rule of its own.
//
// # Order
//
//	etcd member -> store and caches -> listeners -> election, executor
//
// On shutdown the leader resigns and the executor drains at once, while all
// else goes on serving them; then the listeners, the store and the member end.
package node
