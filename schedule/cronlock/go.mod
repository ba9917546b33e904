module github.com/intlock/intlock/schedule/cronlock

go 1.26.0

replace github.com/intlock/intlock => ../..
