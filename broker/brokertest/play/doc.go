// Package play is the program that plays one script: its test binary, without all other tests of
// broker/brokertest, since each planted bug wants another one built.
package play
