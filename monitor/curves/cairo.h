// The functions of the library cairo that draw charts. They are loaded when they are needed, so that a program that
// draws no images also starts if cairo is not installed.
#pragma once

#include <stdexcept>

namespace ddp::curves {

/// Thrown if cairo is not installed. The message says how to install it.
class MissingLibrary : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Declared as in cairo.h of version 1.x, whose binary interface is stable.
struct CairoContext;
struct CairoSurface;

struct CairoTextExtents {
  double x_bearing = 0;
  double y_bearing = 0;
  double width = 0;
  double height = 0;
  double x_advance = 0;
  double y_advance = 0;
};

inline constexpr int kCairoRgb24 = 1;  ///< 32 bits per pixel, in the machine's byte order
inline constexpr int kCairoButt = 0;   ///< line caps
inline constexpr int kCairoRound = 1;  ///< line caps and joins
inline constexpr int kCairoAntialiasNone = 1;
inline constexpr int kCairoAntialiasDefault = 0;
inline constexpr int kCairoNormal = 0;
inline constexpr int kCairoBold = 1;

struct Cairo {
  CairoSurface* (*image_surface_create)(int format, int width, int height);
  int (*surface_status)(CairoSurface*);
  void (*surface_flush)(CairoSurface*);
  unsigned char* (*image_surface_get_data)(CairoSurface*);
  int (*image_surface_get_stride)(CairoSurface*);
  void (*surface_destroy)(CairoSurface*);
  CairoContext* (*create)(CairoSurface*);
  void (*destroy)(CairoContext*);
  void (*scale)(CairoContext*, double x, double y);
  void (*set_source_rgb)(CairoContext*, double red, double green, double blue);
  void (*set_antialias)(CairoContext*, int);
  void (*set_line_width)(CairoContext*, double);
  void (*set_line_cap)(CairoContext*, int);
  void (*set_line_join)(CairoContext*, int);
  void (*set_dash)(CairoContext*, const double* lengths, int count, double offset);
  void (*new_path)(CairoContext*);
  void (*move_to)(CairoContext*, double x, double y);
  void (*line_to)(CairoContext*, double x, double y);
  void (*arc)(CairoContext*, double x, double y, double radius, double from, double to);
  void (*rectangle)(CairoContext*, double x, double y, double width, double height);
  void (*fill)(CairoContext*);
  void (*stroke)(CairoContext*);
  void (*paint)(CairoContext*);
  void (*select_font_face)(CairoContext*, const char* family, int slant, int weight);
  void (*set_font_size)(CairoContext*, double);
  void (*text_extents)(CairoContext*, const char* text, CairoTextExtents*);
  void (*show_text)(CairoContext*, const char* text);
};

/// Loads libcairo.so.2, which is never unloaded. Throws MissingLibrary.
Cairo load_cairo();

}  // namespace ddp::curves
