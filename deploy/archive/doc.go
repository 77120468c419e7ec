// Package archive exports the state of a cluster to an encrypted file and imports it on another computer.
//
// The file is a tar archive that is encrypted with age. Its first entry is export.json, the [Header]. The others are the
// files of the state folder that another computer needs. age proves that the file is complete, and not who has written it: any user with the
// public key of a recipient can encrypt a file to it.
//
// A state has a digest, and the header lists the digests of the states from which the exported one was derived by
// earlier exports and imports. So [Import] detects that the state in the folder has changes that the file lacks.
package archive
