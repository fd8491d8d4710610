// Command image writes leaderd's container image as an OCI archive, without a
// container engine.
//
//	image -o FILE -version VERSION [-name NAME] [-created SECONDS] [-licence FILE] ARCH=BINARY...
//
// Each argument is a platform (amd64, arm64) and the static program for it; the
// archive holds an index of one image for each, so that one file serves all.
//
// The image has the program, a user without rights (65532), the public
// certificate authorities that this module pins (golang.org/x/crypto/x509roots,
// which are Mozilla's), and two folders to write to. Zone data is inside the
// program. There is no shell and no package manager.
//
// The archive is a function of its inputs: it knows no clock, no host and no user,
// so the same binaries make the same bytes, and the same digest, anywhere.
package main
