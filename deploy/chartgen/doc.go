// Command chartgen makes a chart's values.schema.json, and the tables of values in
// its README.md, from the comments of its values.yaml, so that the three cannot
// disagree.
//
//	chartgen [-check] CHART
//
// In values.yaml
//
//   - "# -- TEXT", in front of a value, describes it, and "# " lines below go on
//     with the text. Every value has a description, or consists of values that do;
//   - "# @schema JSON" adds to what the default says of the value's type, which is
//     all of a schema otherwise: a mapping with keys admits these keys alone, one
//     without keys any, a list any list;
//   - "# @section TITLE", in front of a value at the top, begins a table.
//
// In README.md everything between the lines "<!-- values -->" and
// "<!-- /values -->" is written anew. With -check nothing is written, and what is
// not current is an error.
package main
