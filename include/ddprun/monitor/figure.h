// Draws a chart of lines as an image, for SummaryWriter::add_figure().
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/monitor/tensor_values.h>
#include <ddprun/monitor/summary_values.h>

namespace ddp {

/// A line of a figure: points in the order in which they are connected. The line has a gap if a point is not finite.
struct FigureLine {
  std::string label{};      ///< the name in the legend
  std::vector<double> x{};  ///< positions of the points
  std::vector<double> y{};  ///< has the size of `x`
};

/// Makes a line from one-dimensional tensors, on any device and of any dtype.
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
///     writer.add_figure("recall",
///                       {.title = "precision", .x_label = "recall", .lines = {{"daisy", recall, precision}}}, step);
struct Figure {
  std::string title{};              ///< shown above the lines
  std::string x_label{};            ///< shown below the lines
  std::vector<FigureLine> lines{};  ///< each line has a different colour
  int64_t width = 480;              ///< the width of the image, in pixels
  int64_t height = 300;             ///< the height of the image, in pixels

  /// Draws the figure. Throws std::invalid_argument if a line has different numbers of x and y, or if a side is not
  /// from 150 to 4096 pixels. Throws std::runtime_error if cairo is not installed.
  Bitmap draw() const;
};

}  // namespace ddp
