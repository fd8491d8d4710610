// Package client is for programs that ask leaderd for runs and wait for them.
//
//	c, err := client.Dial("leaderd-0:7400,leaderd-1:7400,leaderd-2:7400", insecure.NewCredentials())
//	...
//	sent, err := c.Submit(ctx, client.Submission{Job: "invoices/send", Payload: order, Key: orderID})
//	run, err := c.Wait(ctx, sent.Run)
//	receipt, err := c.Result(ctx, sent.Run)
//
// # Retries
//
// All calls go on, over all nodes that were named, until they have an answer or
// their context ends. A wish is sent with an idempotency key, the caller's or a random
// one, so that it makes one run however often it is sent. A random key covers one call;
// a program that may be restarted between its wish and the answer gives a key of its
// own, such as an order's number.
//
// The other services have generated clients in proto/leaderd/v1, for which [Conn] is a
// connection to a cluster rather than to one node.
//
// # What is not promised
//
// That a wish was taken means that its run will start or get a verdict that says why
// not; not that it will succeed. How often the work is done is the job's guarantee.
package client
