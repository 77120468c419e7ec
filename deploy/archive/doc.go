// Package archive exports the state of a cluster to an encrypted file and imports it on another computer.
//
// The file is JSON that is encrypted with age: the [Header], and the files of the state folder that another computer needs.
// age proves that the file is complete, but it does not prove who has written the file: everybody who has the public key of a
// recipient can encrypt a file for this recipient.
package archive
