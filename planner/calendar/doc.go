// Package calendar tells whether an instant is in a calendar. Like package schedule
// it is pure: a Calendar is immutable, reads no clock, and its answer depends on
// nothing but what it says and the zone data that the program brings.
//
// Dates and hours are what a clock of the calendar's zone shows, so a day is as long
// as it is there: from midnight to midnight, 23 or 25 hours where the clock is set.
package calendar
