// Package api serves leaderd.v1 over gRPC: jobs, runs and the cluster.
//
// Every control node serves it from the store itself, whether it leads or not,
// so it works while there is no leader. What a call has answered every later
// call sees, on any node: single things are read linearizably, and lists of
// jobs come from the watch cache once that has caught up with the store.
//
// # Errors
//
// Everything in a request is checked at the door, and all violations are
// answered at once in a google.rpc.BadRequest. The paths of a job's fields are
// relative to the job, as its JSON form and the files of users have them
// ("name", "spec.schedules[1]"); those of other fields to the request
// ("updateMask", "reason"). Each error of leaderd's own carries a
// google.rpc.ErrorInfo of domain "leaderd" whose reason is the name of a value
// of leaderd.v1.ErrorReason. One table turns the errors of the store into codes
// and reasons; what the store's driver says goes to the log only.
//
// # Who asks
//
// The actor that is recorded with a change is the metadata "leaderd-actor", or
// "anonymous". Nothing checks it yet.
package api
