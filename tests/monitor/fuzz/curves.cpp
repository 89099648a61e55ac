// Events whose checksums are right, each a length and as many bytes: points or an exception, and a picture of whatever
// they hold.
#include <algorithm>
#include <stdexcept>

#include "base/utf8.h"
#include "monitor/curves/scalars.h"
#include "monitor/curves/svg.h"
#include "monitor/event.h"
#include "monitor/wire/protobuf.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp;
using fuzz::require;

curves::Chart chart_of(const curves::Run& run, bool has_texts) {
  curves::Chart chart;
  for (const auto& [tag, curve] : run.curves) {
    chart.lines.emplace_back();
    if (has_texts) chart.title = chart.x_label = chart.lines.back().label = tag;
    std::vector<double> values;
    for (const curves::Point& point : curve) {
      chart.lines.back().x.push_back(static_cast<double>(point.step));
      values.push_back(point.value);
    }
    chart.lines.back().y = curves::smoothed(values, 0.6);
    require(chart.lines.back().y.size() == values.size(), "smoothing keeps the number of points");
  }
  return chart;
}

void check_text(const std::string& svg) {
  require(detail::valid_utf8(svg) == svg, "a picture is UTF-8");
  for (const char c : svg) require(c == '\n' || static_cast<unsigned char>(c) >= 0x20, "XML has no control characters");
  require(std::count(svg.begin(), svg.end(), '<') == std::count(svg.begin(), svg.end(), '>'), "every tag is closed");
}

std::string with_length(const std::string& event) {
  return std::string(1, static_cast<char>(event.size())) + event;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::string run;
  for (int i = 0; i < 4; ++i)
    run += with_length(i == 2 ? encode_session_start({.wall_time = 1, .step = 1})
                              : encode_scalar({.wall_time = 1.0 * i, .step = i}, "loss", i * 0.5));
  std::string huge;
  for (const double value : {1e300, -1e300, 0.0, 1e-300})
    huge += with_length(encode_scalar({.wall_time = 0, .step = INT64_MAX}, "<a & \"b\">", value));
  // As newer writers store a scalar: a tensor of one float, in its content or in its list of floats.
  wire::MessageWriter tensor, value, summary, event;
  tensor.integer(1, 1).bytes(4, std::string_view("\0\0\x80\x3f", 4)).real32(5, 0.5F);
  value.bytes(1, "loss").bytes(8, tensor.str());
  summary.bytes(1, value.str());
  event.real(1, 1.0).integer(2, 5).bytes(5, summary.str());
  return {run, huge, with_length(event.str()), with_length(encode_text({.wall_time = 1, .step = 2}, "tag", "text"))};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  curves::Run run;
  Outcome outcome = Outcome::kAccepted;
  while (!input.is_empty()) {
    const std::uint8_t length = input.byte();
    try {
      curves::add_event(input.piece(length), run);
    } catch (const std::runtime_error&) {
      outcome = Outcome::kRefused;
    }
  }
  std::size_t points = 0;
  for (const auto& [tag, curve] : run.curves) points += curve.size();
  require(points <= bytes.size(), "a point takes bytes");
  const std::string numbers = curves::draw_svg({chart_of(run, /*has_texts=*/false)});
  require(numbers.find("nan") == std::string::npos && numbers.find("inf") == std::string::npos,
          "a picture holds finite numbers");
  const curves::Chart chart = chart_of(run, /*has_texts=*/true);
  check_text(curves::draw_svg({chart}));
  return outcome;
}
