// Package cli is leaderd's command line: serve and dev run a node, everything
// else is a client of the API.
//
// What a script may rely on: results go to standard output and nothing else does;
// errors go to standard error, one line for each thing that is wrong; the exit
// status is 0 for success, 1 for a failure and 2 for a mistake in the command line,
// in a file or in a value (verify: also where it could not check); -o json and -o yaml print the API's own messages in
// their canonical JSON form.
package cli
