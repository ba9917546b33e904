module github.com/intlock/intlock/plugintest

go 1.26.0

replace github.com/intlock/intlock => ..

replace github.com/intlock/intlock/schedule/cronlock => ../schedule/cronlock

replace github.com/intlock/intlock/schedule/gocronlock => ../schedule/gocronlock
