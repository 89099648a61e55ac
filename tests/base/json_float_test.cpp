// Numbers that JSON lacks survive it, under names that Python's float() reads.
#include "base/json_float.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("JsonFloat: a finite number is a JSON number") {
  for (const double value : {0.0, -0.0, 1.5, -1e300, 5e-324, std::numeric_limits<double>::max()}) {
    const Json json = json_float<Json>(value);
    CHECK(json.is_number_float());
    CHECK(json.get<double>() == value);
    CHECK_FALSE(named_float(json).has_value());
    const Json again = Json::parse(json.dump());
    CHECK(again.get<double>() == value);
    CHECK(std::signbit(again.get<double>()) == std::signbit(value));
  }
}

TEST_CASE("JsonFloat: infinities and NaN are named") {
  CHECK(json_float<Json>(kInfinity).dump() == R"({"__float__":"inf"})");
  CHECK(json_float<Json>(-kInfinity).dump() == R"({"__float__":"-inf"})");
  CHECK(json_float<Json>(kNaN).dump() == R"({"__float__":"nan"})");
  UNSCOPED_INFO("a NaN has no sign that Python would show");
  CHECK(json_float<Json>(std::copysign(kNaN, -1.0)).dump() == R"({"__float__":"nan"})");
}

TEST_CASE("JsonFloat: comes back from its text") {
  const auto round_trip = [](double value) {
    return named_float(Json::parse(json_float<Json>(value).dump())).value_or(0.0);
  };
  CHECK(round_trip(kInfinity) == kInfinity);
  CHECK(round_trip(-kInfinity) == -kInfinity);
  CHECK(std::isnan(round_trip(kNaN)));
}

TEST_CASE("NamedFloat: any other value is none") {
  for (const char* text :
       {"null", "true", "1.5", "\"inf\"", "[]", "[\"inf\"]", "{}", R"({"__float__": null})", R"({"__float__": 1.0})",
        R"({"__float__": "1.0"})", R"({"__float__": ""})", R"({"__float__": "Inf"})", R"({"__float__": "infinity"})",
        R"({"__float__": " inf"})", R"({"__float__": "inf\u0000"})", R"({"__float__": ["inf"]})",
        R"({"__float__": {"__float__": "inf"}})", R"({"__Float__": "inf"})", R"({"__float__": "inf", "more": 1})"}) {
    INFO(text);
    CHECK_FALSE(named_float(Json::parse(text)).has_value());
  }
}

TEST_CASE("NonFiniteValue: is the inverse of the name") {
  for (const double value : {kInfinity, -kInfinity}) CHECK(non_finite_value(non_finite_name(value)) == value);
  CHECK(std::isnan(non_finite_value(non_finite_name(kNaN)).value_or(0)));
  for (const char* name : {"", "i", "in", "infx", "+inf", "NaN", "-nan", "nan "}) {
    INFO("'" << name << "'");
    CHECK_FALSE(non_finite_value(name).has_value());
  }
}

}  // namespace
}  // namespace ddp
