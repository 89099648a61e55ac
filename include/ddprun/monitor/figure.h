// A chart of lines as pixels, for SummaryWriter::add_figure().
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/monitor/tensor_values.h>
#include <ddprun/monitor/summary_values.h>

namespace ddp {

/// A line of a figure: points in the order in which they are joined, with a gap where one is not finite.
struct FigureLine {
  std::string label{};      ///< its name in the legend
  std::vector<double> x{};  ///< positions of the points
  std::vector<double> y{};  ///< as many as x
};

/// A line from tensors of one dimension, on any device and of any type.
template <TensorLike Tensor>
FigureLine figure_line(std::string label, const Tensor& x, const Tensor& y) {
  const auto numbers = [](const Tensor& values) {
    std::vector<double> all;
    detail::with_numbers_as<double>(values, [&](const auto& some) { all.assign(some.begin(), some.end()); });
    return all;
  };
  return {.label = std::move(label), .x = numbers(x), .y = numbers(y)};
}

/// A chart that SummaryWriter::add_figure() shows among a run's images, such as a receiver operating curve, a spectrum
/// or a schedule. It replaces the matplotlib figures of Python. The library cairo (libcairo.so.2) draws it: if it is
/// not installed, add_figure() writes nothing and reports that once on standard error.
///
///     writer.add_figure("recall", {.title = "precision", .x_label = "recall", .lines = {{"daisy", recall,
///     precision}}},
///                       step);
struct Figure {
  std::string title{};              ///< above the lines
  std::string x_label{};            ///< below them
  std::vector<FigureLine> lines{};  ///< each in a colour of its own
  int64_t width = 480;              ///< of the picture, in pixels
  int64_t height = 300;             ///< the same

  /// Throws std::invalid_argument for a line with more x than y, or the other way round, and for a side that is not
  /// from 150 to 4096 pixels,
  /// and std::runtime_error where cairo is not installed.
  Bitmap draw() const;
};

}  // namespace ddp
