// eapache/go-resiliency (Debian): nanoseconds of a call.  peer ROUNDS
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"gopkg.in/eapache/go-resiliency.v1/breaker"
)

var no = errors.New("no")

func good() error { return nil }

func nsOf(f func(i int), n int) float64 {
	start := time.Now()
	for i := 0; i < n; i++ {
		f(i)
	}
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	closed := breaker.New(10, 1, time.Hour)
	failing := breaker.New(1<<30, 1, time.Hour)
	open := breaker.New(1, 1, time.Hour)
	_ = open.Run(func() error { return no })
	tenth := 0
	fails := func() error {
		tenth++
		if tenth%10 == 0 {
			return no
		}
		return nil
	}
	paths := []struct {
		name string
		f    func(i int)
		n    int
	}{
		{"eapache go-resiliency: closed", func(int) { _ = closed.Run(good) }, 1000000},
		{"eapache go-resiliency: 10 % fail", func(int) { _ = failing.Run(fails) }, 1000000},
		{"eapache go-resiliency: refused", func(int) { _ = open.Run(good) }, 1000000},
	}
	found := make([]string, len(paths))
	for round := 0; round < rounds; round++ {
		for i, p := range paths {
			found[i] += fmt.Sprintf(" %.2f", nsOf(p.f, p.n))
		}
	}
	for i, p := range paths {
		fmt.Println(p.name + "\t" + found[i][1:])
	}
}
