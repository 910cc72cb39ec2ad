// Package stack runs the whole system on one machine: private servers through
// testenv, the services as real processes built from this checkout, and the strict
// fakes of outside services. The demo, `make up` and the end-to-end tests use it.
//
// Everything is a child of the calling process and dies with it; everything it
// writes is below Options.Dir. Ports are free ones; a server is identified before
// the first write to it and stopped by its own pid.
package stack
