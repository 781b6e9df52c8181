"""All families of attacks, by name."""

from attacks.arrays import ARRAYS
from attacks.documents import DOCUMENTS, PICKLES
from attacks.locations import LOCATIONS
from attacks.packs import PACKS
from attacks.page import PAGE
from attacks.pictures import PICTURES
from attacks.runner import Family
from attacks.servers import SERVERS
from attacks.sidecars import SIDECARS
from attacks.specs import SPECS
from attacks.tables import TABLES
from attacks.tars import COMPRESSED_TARS, TARS
from attacks.views import VIEWS

FAMILIES: dict[str, Family] = {
    "tars": TARS,
    "compressed tars": COMPRESSED_TARS,
    "arrays": ARRAYS,
    "documents": DOCUMENTS,
    "pickles": PICKLES,
    "pictures": PICTURES,
    "specs": SPECS,
    "tables": TABLES,
    "views": VIEWS,
    "sidecars": SIDECARS,
    "packs": PACKS,
    "servers": SERVERS,
    "locations": LOCATIONS,
    "page": PAGE,
}
