module github.com/intlock/intlock/schedule/gocronlock

go 1.26.0

replace github.com/intlock/intlock => ../..
