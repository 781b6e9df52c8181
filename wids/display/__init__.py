"""Display of samples: views of fields, thumbnails, pages for notebooks."""
