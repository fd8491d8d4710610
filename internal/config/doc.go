// Package config is the configuration of one leaderd process.
//
// A setting has one path, such as election.ttl, and from it three spellings:
// the key in the YAML file (nested: election, ttl), the flag
// (--election-ttl) and the environment variable (LEADERD_ELECTION_TTL). Flags
// win over the environment, the environment over the file, and the file over
// the defaults. A list or map that is given anew replaces the one below it; an
// empty environment variable counts as not set.
//
// What nobody knows is refused, with the nearest known name, because a setting
// that is silently ignored is found out in an outage. Environment variables
// that Kubernetes adds for services named leaderd… and those that leaderd gives
// to the commands it runs are let through.
//
// A Config that Load returned without error is complete and valid.
package config
