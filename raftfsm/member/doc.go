// Package member decides who a node is among the members of its cluster: whose data
// directory this is, whether an empty disk may found the cluster or join it, and
// whether a member may be replaced. It asks nobody and runs nothing. Package
// raftfsm/node asks the others, hands in their answers, and does what is decided.
//
// DESIGN.md, beside this file, names the invariants.
package member
