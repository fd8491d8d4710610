// Package ops is what operators and their machines look at: health and metrics
// over plain HTTP.
//
// Live and ready are different questions. Live (/livez) asks whether a restart
// would help: no, while the process answers; what depends on others, such as etcd,
// must never restart a fleet. Ready (/readyz) asks whether the process does its work
// now: a loop that stands still, for whatever reason, makes it not ready. That is
// answered from what the loops reported last; asking costs no request to anything.
package ops
