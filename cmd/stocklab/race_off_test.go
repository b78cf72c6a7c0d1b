//go:build !race

package main

// raceShadow is how many times the memory a program takes without the race detector.
const raceShadow = 1
