#include "monitor/curves/cairo.h"

#include <dlfcn.h>

#include <string>

namespace ddp::curves {
namespace {

class Loader {
 public:
  Loader() : library_(dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) refuse();
  }

  template <typename Function>
  void operator()(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    const char* reason = dlerror();
    throw MissingLibrary(std::string("PNG pictures need the library cairo, which cannot be loaded (") +
                         (reason != nullptr ? reason : "no reason given") +
                         "): install it (Debian, Ubuntu: libcairo2; Fedora: cairo), or draw an .svg picture");
  }

  void* library_;
};

}  // namespace

Cairo load_cairo() {
  const Loader load;
  Cairo cairo{};
  load(cairo.image_surface_create, "cairo_image_surface_create");
  load(cairo.surface_status, "cairo_surface_status");
  load(cairo.surface_flush, "cairo_surface_flush");
  load(cairo.image_surface_get_data, "cairo_image_surface_get_data");
  load(cairo.image_surface_get_stride, "cairo_image_surface_get_stride");
  load(cairo.surface_destroy, "cairo_surface_destroy");
  load(cairo.create, "cairo_create");
  load(cairo.destroy, "cairo_destroy");
  load(cairo.scale, "cairo_scale");
  load(cairo.set_source_rgb, "cairo_set_source_rgb");
  load(cairo.set_antialias, "cairo_set_antialias");
  load(cairo.set_line_width, "cairo_set_line_width");
  load(cairo.set_line_cap, "cairo_set_line_cap");
  load(cairo.set_line_join, "cairo_set_line_join");
  load(cairo.set_dash, "cairo_set_dash");
  load(cairo.new_path, "cairo_new_path");
  load(cairo.move_to, "cairo_move_to");
  load(cairo.line_to, "cairo_line_to");
  load(cairo.arc, "cairo_arc");
  load(cairo.rectangle, "cairo_rectangle");
  load(cairo.fill, "cairo_fill");
  load(cairo.stroke, "cairo_stroke");
  load(cairo.paint, "cairo_paint");
  load(cairo.select_font_face, "cairo_select_font_face");
  load(cairo.set_font_size, "cairo_set_font_size");
  load(cairo.text_extents, "cairo_text_extents");
  load(cairo.show_text, "cairo_show_text");
  return cairo;
}

}  // namespace ddp::curves
