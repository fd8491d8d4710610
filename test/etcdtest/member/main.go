// Program member is an etcd member for tests; see etcdtest.WithProgram.
package main

import "github.com/leaderd/leaderd/test/etcdtest"

func main() { etcdtest.Main() }
