// Package internal holds no code. Its tests are the two gates that the design rests on: the floors of the packages
// (floors_test.go) and the purity of the machines (pure_test.go).
package internal
