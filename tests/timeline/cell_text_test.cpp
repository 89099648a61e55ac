#include "timeline/cell_text.h"

#include "tests/support/catch.h"

namespace ddp::timelines {
namespace {

TEST_CASE("CellText: times have a unit and few digits") {
  CHECK(time_text(0) == "0 ns");
  CHECK(time_text(999) == "999 ns");
  CHECK(time_text(999.6) == "1.0 us");
  CHECK(time_text(4100) == "4.1 us");
  CHECK(time_text(99'960) == "100 us");
  CHECK(time_text(999'600) == "1.00 ms");
  CHECK(time_text(12.34e6) == "12.34 ms");
  CHECK(time_text(999.996e6) == "1.00 s");
  CHECK(time_text(123.456e9) == "123.46 s");
  CHECK(time_text(9e15) == "9e+06 s");
  CHECK(time_text(1.682e74) == "1.68e+65 s");
}

TEST_CASE("CellText: sizes have a unit and few digits") {
  CHECK(bytes_text(9999) == "9999 bytes");
  CHECK(bytes_text(26'500) == "26.5 kB");
  CHECK(bytes_text(44'700'000) == "44.7 MB");
  CHECK(bytes_text(28'000'000'000) == "28.0 GB");
}

}  // namespace
}  // namespace ddp::timelines
