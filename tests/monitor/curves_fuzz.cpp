// Random damage inside events whose checksums are right: points or an exception, and a picture of whatever they hold.
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "monitor/curves/scalars.h"
#include "monitor/curves/svg.h"
#include "monitor/event.h"

namespace ddp::curves {
namespace {

TEST(CurvesFuzz, any_event_gives_points_or_an_exception_and_any_points_a_picture) {
  std::mt19937 random(17);
  int thrown = 0;
  int drawn = 0;
  for (int round = 0; round < 5000; ++round) {
    curves::Run run;
    try {
      for (int i = 0; i < 4; ++i) {
        std::string event = i == 2 ? encode_session_start({.wall_time = 1, .step = 2})
                                   : encode_scalar({.wall_time = 1.0 * i, .step = i}, "loss", i * 0.5);
        for (size_t times = random() % 3; times > 0; --times)
          event[random() % event.size()] = static_cast<char>(random());
        add_event(event, run);
      }
    } catch (const std::runtime_error&) {
      ++thrown;
    }
    Chart chart;
    for (const auto& [tag, curve] : run.curves) {
      chart.title = tag;
      chart.lines.push_back({.label = tag});
      for (const Point& point : curve) {
        chart.lines.back().x.push_back(static_cast<double>(point.step));
        chart.lines.back().y.push_back(point.value);
      }
    }
    const std::string svg = draw_svg({chart});
    ASSERT_EQ(svg.find("nan"), std::string::npos) << "round " << round;
    ASSERT_EQ(svg.find("inf"), std::string::npos) << "round " << round;
    if (!chart.lines.empty()) ++drawn;
  }
  EXPECT_GT(thrown, 500);
  EXPECT_GT(drawn, 500);
}

}  // namespace
}  // namespace ddp::curves
