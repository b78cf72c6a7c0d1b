//go:build race

package main

// raceShadow is how many times the memory a program takes with the race detector,
// which remembers who touched what.
const raceShadow = 6
