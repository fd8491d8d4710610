// Package codec is the one encoding of leaderd's domain: between package state
// and the messages of leaderd.state.v1 (values in the store), leaderd.worker.v1
// (requests to the journal and their answers) and leaderd.v1
// (job specs). It is pure. A value that is changed in place is changed as a
// message, so that fields which this version does not know survive.
package codec
